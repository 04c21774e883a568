"""The single source of the wire types, lifecycle, errors and defaults, and its compiler."""
