"""A set of programs from a file, from start to end: the verb ``sphtp run``.

``run_file`` reads the file, ``rules`` decides which program starts when, and when the run is over,
``board`` stores what is known of each program, ``runner`` performs, ``guard`` is the parent of each
program, and ``table`` draws.
"""
