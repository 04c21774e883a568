"""A mesh: nodes that connect directly and forward messages to interested nodes, without a store."""
