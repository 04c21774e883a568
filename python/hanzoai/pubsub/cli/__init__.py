"""The program `hanzo-pubsub`. Each command is a separate module, imported when it is called."""
