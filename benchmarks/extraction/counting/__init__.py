"""The parts of `benchmarks/extraction/kernel_counting.py`: pieces of models, one piece compared, workers, the page."""
