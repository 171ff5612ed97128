"""Answers from a lake: questions, the verdict, and the lake's tables in other programs."""
