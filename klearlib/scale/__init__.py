"""Beyond one machine: the RL runs on verl over Ray, and the stages of a plan on a Ray cluster.

verl and Ray are imported inside functions here and nowhere else in the suite.
"""
