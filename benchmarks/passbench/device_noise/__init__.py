"""What of a GPU makes the same calls take longer: addresses of a process (`process_levels.py`), and lines of the L2
cache that another's kernels leave behind (`evict_last.py`).
"""
