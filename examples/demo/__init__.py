"""The demonstration: a text is streamed word by word while connections fail and tokens expire."""
