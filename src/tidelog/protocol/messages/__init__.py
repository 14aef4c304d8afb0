"""Generated messages, one module per API key or group of records; import the module you need."""
