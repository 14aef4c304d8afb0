"""What others see of a broker while it runs: metrics and health, told over HTTP."""
