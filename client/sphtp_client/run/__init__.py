"""The verb ``sphtp run``: servers and programs that a file describes.

``run_file`` reads the file. ``rules`` decides when each program starts, and when the run is over.
``board`` stores the state of each program, and ``runner`` starts and ends them. ``guard`` is the
parent process of each program, and ``table`` draws the states.
"""
