"""What exported tasks pay: known passes (`oracle_rewards.py`), nothing at all, and attacks (`attack_rewards.py`)."""
