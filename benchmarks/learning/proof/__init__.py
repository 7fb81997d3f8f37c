"""The experiment of `benchmarks.learning.from_scratch`: its stages, and how sampled answers are judged beside them."""
