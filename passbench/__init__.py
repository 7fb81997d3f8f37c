"""PassBench: a sample and a pass in, result records out. Imports only torch, triton, numpy, pandas, pyarrow."""
