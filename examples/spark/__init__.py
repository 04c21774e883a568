"""Jobs on Spark that publish, read, and tell how they get on."""
