"""One HTML file that needs nothing else: pictures drawn by hand in SVG, light and dark, on any screen."""
