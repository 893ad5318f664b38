"""How weights begin."""

STD = 0.02  # the spread of GPT (Radford et al., 2018), which GPT-2, GPT-3 and most since have kept
