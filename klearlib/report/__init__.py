"""The report: tables, figures, and verdicts on the claims of the paper."""
