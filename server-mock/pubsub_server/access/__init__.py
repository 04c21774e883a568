"""Access rules: what an identity may read and publish. The first match decides."""
