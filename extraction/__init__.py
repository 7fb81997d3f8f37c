"""From a catalogue of models to subgraphs: specs, example inputs, traced graphs, cuts, variants."""
