"""From a run to a network: contracts, learners, batches, the loop. Imports attacks and below."""
