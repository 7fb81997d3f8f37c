"""Launches behind a recording of kernels: what CUPTI does to them while a thread of torch's detaches it.

In: a GPU. Out: how many recordings there were, and in how many CUPTI was still attached behind the next call.
Read first: `detached_launches.py`. May import: passbench.
"""
