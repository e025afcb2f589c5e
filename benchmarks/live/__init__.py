"""What the live service is put through: kills, load, and nonsense."""
