"""The main job, shown: a text streamed word by word, while all goes wrong that can."""
