"""The relay's processes: links, tasks and clocks around the machine of the hand-over."""
