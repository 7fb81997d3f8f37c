"""Authors of passes: the offline author and the baselines; an LLM agent is one more file."""
