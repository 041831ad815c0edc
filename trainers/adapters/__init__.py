"""Our tasks in other trainers."""
