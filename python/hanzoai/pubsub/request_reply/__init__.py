"""Requests over topics: a program publishes a request, and a responder publishes the reply."""
