"""One client connection: routing and the order of responses. Pure: bytes and answers go in, actions come out."""
