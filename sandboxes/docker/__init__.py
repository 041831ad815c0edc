"""The docker backend: containers, the engines that run them, the image that they start from."""
