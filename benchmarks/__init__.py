"""Each benchmark runs side by side with a named peer, in one run. The last line that it prints is a JSON object."""
