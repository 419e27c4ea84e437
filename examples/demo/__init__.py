"""`make demo`: rewind a running pipeline from start to collected garbage, under load, and prove that it went well."""
