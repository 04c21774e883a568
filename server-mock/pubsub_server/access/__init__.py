"""What an identity may do: access rules, first match wins."""
