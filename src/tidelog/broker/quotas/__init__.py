"""Client quotas: which are set and for whom, what clients have used, and how long they wait."""
