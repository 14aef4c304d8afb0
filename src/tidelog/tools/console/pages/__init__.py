"""One module for each page or family of pages; `application.PAGES` lists them."""
