"""The loop that one writes by hand."""


def train_on(model, rule, loss_of, batches):
    """Train on each batch once; return how many rows there were, and the sum of their losses."""
    rows, total = 0, 0.0
    for inputs, targets in batches:
        rule.zero_grad()
        loss = loss_of(model(inputs), targets)
        loss.backward()
        rule.step()
        rows += len(targets)
        total += loss.item() * len(targets)
    return rows, total
