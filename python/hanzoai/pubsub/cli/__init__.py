"""The program `hanzo-pubsub`. Every command is a module of its own, imported when it is called."""
