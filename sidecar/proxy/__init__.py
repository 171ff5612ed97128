"""One client connection: routing, response order, rewriting. Pure: bytes and answers in, actions out."""
