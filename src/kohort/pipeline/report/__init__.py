"""One HTML file without external references: charts in SVG, light and dark, on any screen."""
