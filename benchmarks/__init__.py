"""Each benchmark runs side by side with a named peer, in one run; the last line printed is one JSON object."""
