"""What the host does beside the clock: how fast each core is, who uses the processor, and what torch's threads cost."""
