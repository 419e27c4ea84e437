"""Values as text: JSON, schemas, quoted names, all of them exact."""
