"""DataFrame to DataFrame: parsing, encoding, comparing. No reads, no writes."""
