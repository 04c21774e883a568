"""The single source of the suite's wire, lifecycle, errors and defaults, and its compiler."""
