"""What each notebook does: its arms, its tables and figures, its verdicts. One file per
experiment."""
