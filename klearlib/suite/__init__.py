"""What `klear run`, `plan`, `doctor` and `status` do with all notebooks of a profile."""
