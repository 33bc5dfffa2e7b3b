"""The node half of localkube: pods as real processes in bubblewrap sandboxes."""
