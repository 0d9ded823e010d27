"""Golden datasets: fetched by address within bounds, kept by digest, read as samples."""
