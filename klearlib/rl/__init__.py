"""Reinforcement learning with verifiable rewards: rollouts, advantages, clipping rules, objective,
loop."""
